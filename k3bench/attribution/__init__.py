"""Attribution: which block of a model owns the device time of a profiler trace."""
