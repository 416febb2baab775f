"""What several test files use. No test file imports another; they import from here."""
