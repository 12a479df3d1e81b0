"""Values shared by client, service and server. Light: no gRPC, no database, no compiler."""
