"""What a policy is worth: episodes, estimates from logged data, films."""
