def sum_up(numbers):
    return sum(numbers)


print(sum_up([1, 2, 3]))
