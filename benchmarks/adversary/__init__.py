"""What one client can do to others: inputs that cost a service more than they cost their sender."""
