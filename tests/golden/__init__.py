"""Golden outputs: what the stages made when their versions were last raised."""
