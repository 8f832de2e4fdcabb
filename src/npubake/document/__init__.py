"""Document room: YAML text -> positioned tree -> validated plain data. Knows no recipe and no platform."""
