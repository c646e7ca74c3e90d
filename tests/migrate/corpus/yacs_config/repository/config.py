from yacs.config import CfgNode as CN

_C = CN()
_C.MODEL = CN()
_C.MODEL.TYPE = 'small'
_C.MODEL.NUM_CLASSES = 12
_C.DATA = CN()
_C.DATA.IMG_SIZE = 48


def get_config(args):
    config = _C.clone()
    config.defrost()
    if args.opts:
        config.merge_from_list(args.opts)
    config.freeze()
    return config
