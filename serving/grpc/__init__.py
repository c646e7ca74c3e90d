"""The gRPC front end. Methods only convert."""
