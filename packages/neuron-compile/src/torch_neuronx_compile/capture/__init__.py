"""From Dynamo's graph to AOT Autograd's: static shapes, decompositions, forward and backward apart."""
