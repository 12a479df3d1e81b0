"""Operations whose loops go where data says: scatter and sort."""
