import torchvision.transforms.functional as F


class SquarePad:
    def __call__(self, image):
        w, h = image.size
        side = max(w, h)
        left, top = (side - w) // 2, (side - h) // 2
        return F.pad(image, (left, top, side - w - left, side - h - top), 0, 'constant')
