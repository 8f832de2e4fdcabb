"""One folder a vendor, the same rooms in each; none knows another."""
