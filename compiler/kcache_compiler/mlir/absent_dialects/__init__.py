"""Where the bindings look for the Python classes of a dialect that they bring none for.

They look again at every attribute of such a dialect until they find a module, which costs more than reading
the attribute. The modules here are empty: attributes stay what they are without them.
"""
