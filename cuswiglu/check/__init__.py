"""`cuswiglu check`: how exact every kernel is on this machine, beside torch eager and FP64."""
