"""How many tasks and nodes are enough for a rate (Kalavri et al. 2018; Chang, Li, Xu), and when to change them."""

from tenax.planning.scaling.demand import Demand, Group, Shape
from tenax.planning.scaling.facade import ALGORITHMS, plan_scaling
from tenax.planning.scaling.groups import declared_groups
from tenax.planning.scaling.outcomes import Bottleneck, Direction, Keep, Prediction, Rescale
from tenax.planning.scaling.validator import check_scaling

__all__ = [
    "ALGORITHMS",
    "Bottleneck",
    "Demand",
    "Direction",
    "Group",
    "Keep",
    "Prediction",
    "Rescale",
    "Shape",
    "check_scaling",
    "declared_groups",
    "plan_scaling",
]
