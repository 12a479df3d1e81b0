"""Functions that every framework has, as each exports them. ``exported`` is what ``make`` makes."""
