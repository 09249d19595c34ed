"""What holds for the whole run of the tests."""

from __future__ import annotations

import gc

# Listings and facts are many small objects that stay: to look for cycles among them all the time
# costs a twentieth of the run, and finds nothing.
gc.set_threshold(100_000, 20, 100)
