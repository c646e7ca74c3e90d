"""Offline classification: folders, tar shards, Parquet and lists of images to Parquet files with the labels, exactly once.

    plan      what SOURCE holds, cut into shards in a stable order, written down
    read      images of the shards that are not done yet        (threads, object stores too)
    decode    image bytes -> rows of the model's input          (threads; libjpeg-turbo releases the GIL)
    model     batches through the plan's session
    output    one Parquet file per shard: written aside, flushed, renamed

The stages are SPDL's pipeline of bounded queues. A shard whose file is there is done; that is the whole checkpoint.
"""
