"""What is done with files: attached by agents, opened by people, swept by the clock."""
