"""What connects kcache with frameworks: it uses the client, and nothing below uses it."""
