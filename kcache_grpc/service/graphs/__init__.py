"""Programs and their specs: uploads, imports, keys and canonicalizer upgrades."""
