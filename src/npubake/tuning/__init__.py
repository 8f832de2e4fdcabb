"""tuning: what makes a quantised model more accurate once its precisions stand."""
