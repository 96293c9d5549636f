"""Runs applications on Spark: the cluster, the driver that carries out control, and what runs in Spark tasks."""
