"""End to end: the command line driven through one small workspace."""
