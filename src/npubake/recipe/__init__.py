"""YAML -> validated, frozen Recipe; every fault at once with file:line:column and path."""
