"""x"""

WEIGHTS = {n: (0.0,)*11 for n in ['base', 'cache sharp', 'cache flat', 'frequency', 'knn sharp', 'knn flat', 'mixture sharp', 'mixture flat', 'mbpa', 'hebb']}
