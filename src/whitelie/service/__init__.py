"""The private decision service: it decides, learns from flipped bits, and keeps counts only."""
