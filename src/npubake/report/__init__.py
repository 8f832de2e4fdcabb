"""What a build says afterwards: manifest and tables."""
