"""The checkpoint of a job: a folder that each attempt finds as the last complete version left it."""
