"""Record what the installed engine accepts, prints, refuses, exports and plans, in the repository's own format."""
