"""The queue, written in SQL; mldb reads the files beside this one."""
