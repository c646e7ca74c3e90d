import sys


def get_network(args):
    """ return given network
    """
    if args.net == 'lenet':
        from models.lenet import lenet
        net = lenet()
    elif args.net == 'tiny':
        from models.tiny import tiny
        net = tiny()
    else:
        print('the network name you have entered is not supported yet')
        sys.exit()
    return net
