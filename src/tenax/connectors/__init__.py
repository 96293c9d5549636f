"""Where rows come from and results go: the contracts, files, generators, results as Parquet. No Spark."""
