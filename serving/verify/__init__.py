"""Anyone's endpoint beside a packaged model: images in, answers compared, and what explains a difference named.

images        pictures that tell mistakes apart: flat colors, photos of odd sizes, EXIF, alpha, palettes, gray, 16 bits, CMYK
endpoint      how an address takes images or tensors, and what it answered
reference     what the packaged model answers, in fp32
hypotheses    what else an endpoint may do: other preprocessing, outputs, labels, models, precisions
scores        how far answers are from what a hypothesis expects; the one place that compares them
judge         one hypothesis after another until the answers are explained, and what is said of them
"""
