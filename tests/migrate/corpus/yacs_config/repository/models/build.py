from .small import SmallNet


def build_model(config):
    model_type = config.MODEL.TYPE
    if model_type == 'small':
        model = SmallNet(img_size=config.DATA.IMG_SIZE, num_classes=config.MODEL.NUM_CLASSES)
    else:
        raise NotImplementedError(f"Unkown model: {model_type}")
    return model
