SELECT _take_over()
