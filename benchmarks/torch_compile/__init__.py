"""``torch.compile`` with backend kcache beside Inductor and eager mode."""
