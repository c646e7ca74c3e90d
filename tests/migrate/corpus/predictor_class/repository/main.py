import sys

from predictor import Predictor

if __name__ == '__main__':
    predictor = Predictor()
    for path in sys.argv[1:]:
        print(path, predictor.predict(path))
