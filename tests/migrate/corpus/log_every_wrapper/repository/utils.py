class MetricLogger:
    def __init__(self, delimiter="\t"):
        self.delimiter = delimiter

    def log_every(self, iterable, print_freq, header=None):
        for i, obj in enumerate(iterable):
            if i % print_freq == 0:
                print(header, i)
            yield obj
