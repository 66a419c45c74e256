"""Things to look at and to try: a demo shop and UAT specs that test it."""
