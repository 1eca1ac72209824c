"""What holds for every test: a busy machine is not a wrong answer, and a failure can be replayed."""

from hypothesis import settings

settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")
