"""What the black-box suites share: a server under test, an HTTP client, and the count of checks."""
