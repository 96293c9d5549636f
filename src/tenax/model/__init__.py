"""What a topology is: frozen data, validated when it is built."""
