"""Programs of frameworks and files, read into a format and bytes. Knows no client and no transport."""
