"""A small web shop to run UAT checks against; standard library only, everything in memory."""
