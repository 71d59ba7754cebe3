"""A small pipeline: signals are recorded by hand, their statistics compute themselves."""

import math

import penstock.pipeline as dj

schema = dj.Schema("lab")


@schema
class Signal(dj.Manual):
    definition = """
    signal_id : int          # which recording
    ---
    frequency : float        # in hertz
    """


@schema
class Statistics(dj.Computed):
    definition = """
    -> Signal
    ---
    mean  : float
    power : float
    """

    def make(self, key):
        frequency = (Signal & key).fetch1("frequency")
        if frequency == 13:
            raise ValueError("the recording of 13 Hz is damaged")
        samples = [math.sin(2 * math.pi * frequency * t / 1000) for t in range(1000)]
        power = sum(s * s for s in samples) / len(samples)
        self.insert1({**key, "mean": sum(samples) / len(samples), "power": power})


Signal.insert([{"signal_id": number, "frequency": number} for number in range(1, 31)], skip_duplicates=True)
