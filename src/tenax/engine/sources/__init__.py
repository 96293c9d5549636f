"""Where rows come from: replayable sources that can read any planned range again."""
