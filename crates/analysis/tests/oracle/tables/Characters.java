
import java.util.*;
public class Characters { 
 static void dump(String n, java.util.function.IntPredicate p){ StringBuilder sb=new StringBuilder(n); int s=-1; for(int c=0;c<=0x110000;c++){ boolean b=c<=0x10FFFF&&p.test(c); if(b&&s<0)s=c; if(!b&&s>=0){ sb.append(String.format(s==c-1?" %x":" %x-%x",s,c-1)); s=-1; } } System.out.println(sb);}
 public static void main(String[] a){ dump("letter",Character::isLetter); dump("white",Character::isWhitespace); dump("digit", Character::isDigit); dump("nd", c->Character.getType(c)==Character.DECIMAL_DIGIT_NUMBER);
  dump("lower", c->Character.toLowerCase(c)!=c); for(int c=0;c<=0x10FFFF;c++) if(Character.toLowerCase(c)!=c) System.out.println(String.format("L %x %x",c,Character.toLowerCase(c))); } }