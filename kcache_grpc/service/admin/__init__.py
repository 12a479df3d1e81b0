"""Operations of administrators, each with an audit event."""
