"""Jobs: the code of people, in processes of a user of its own."""
