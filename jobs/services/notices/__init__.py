"""Notices: from what happened, over rules, to messages that leave the house."""
