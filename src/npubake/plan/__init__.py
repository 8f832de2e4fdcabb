"""From targets and the names of their data to the DAG of tasks. Pure."""
