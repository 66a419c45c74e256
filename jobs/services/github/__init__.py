"""GitHub Actions as the place where runners live: which workflow runs may act as which agent."""
